"""The explorer: the service's own web pages. Start here to find where a page belongs.

- :mod:`app.ui.pages` has a module for each family of pages, with a router each, and lists them.
- ``templates/`` has their HTML: a page extends ``base.html`` and borrows from ``macros.html``.
- ``static/`` has styles and ES modules; :mod:`app.ui.assets` serves them. A page names the modules
  that it needs, and can be read without them.
- :mod:`app.ui.rendering` makes a page of a template, with its policy.
- :mod:`app.ui.navigation` has the links of the header, and the tabs of a space.
- :mod:`app.ui.sign_in_cookie` signs visitors in where keys are required.
- :mod:`app.ui.problem_page` shows errors to visitors of pages.
- :mod:`app.ui.api_docs` is ``/docs``.

Pages compute nothing: they show the answers of the services. A visitor's changes go through the
JSON API, with the same scopes.
"""
