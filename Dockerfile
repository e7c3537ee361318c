# The service without torch, as a user of its own. The base is pinned: raise both lines together.
FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c AS build
WORKDIR /srv
COPY constraints.txt pyproject.toml hatch_build.py ./
COPY client_sdk client_sdk
RUN python -m venv /opt/venv
RUN /opt/venv/bin/python -m pip install --no-cache-dir -c constraints.txt './client_sdk[fast]' '.[clustering,cyclonedx,objects,otel]'
# Nothing in the image installs packages or tests them.
RUN /opt/venv/bin/python -m pip uninstall --yes pip && find /opt/venv -type d -name tests -prune -exec rm -r {} +

FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c
# An empty home, as a volume begins with what lies there and a restore wants an empty folder.
RUN groupadd --gid 10001 modelkin && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/modelkin modelkin && install --directory --mode 700 --owner 10001 --group 10001 /var/lib/modelkin
COPY --from=build /opt/venv /opt/venv
WORKDIR /srv
COPY app app
COPY workers workers
COPY migrations migrations
# Its user cannot write here, so that each start would compile all again.
RUN python -m compileall -q app workers migrations
# By number, so that a cluster can see that it is not root.
USER 10001:10001
VOLUME /var/lib/modelkin
# The kernels are compiled for the machine that runs them, once, beside the data.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/var/lib/modelkin/kernels \
    MODELKIN_HOST=0.0.0.0 \
    MODELKIN_PORT=8000 \
    MODELKIN_LOG_FORMAT=json \
    MODELKIN_DATABASE_URL=sqlite:////var/lib/modelkin/modelkin.db
EXPOSE 8000
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['MODELKIN_PORT'] + '/readyz', timeout=3)"]
CMD ["python", "-m", "app"]
