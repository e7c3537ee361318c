# The service without torch, as a user of its own.
FROM python:3.12-slim AS build
WORKDIR /srv
COPY constraints.txt pyproject.toml ./
COPY client_sdk client_sdk
RUN python -m venv /opt/venv
RUN /opt/venv/bin/python -m pip install --no-cache-dir -c constraints.txt './client_sdk[fast]' '.[jobs,clustering]'

FROM python:3.12-slim
RUN useradd --system --create-home --home-dir /var/lib/modelkin modelkin
COPY --from=build /opt/venv /opt/venv
WORKDIR /srv
COPY app app
COPY workers workers
COPY migrations migrations
USER modelkin
VOLUME /var/lib/modelkin
# The kernels are compiled for the machine that runs them, once, beside the data.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/lib/modelkin/kernels \
    MODELKIN_HOST=0.0.0.0 \
    MODELKIN_LOG_FORMAT=json \
    MODELKIN_DATABASE_URL=sqlite:////var/lib/modelkin/modelkin.db
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=3)"]
CMD ["python", "-m", "app"]
