"""The built files of the web page, and the HTTP headers that protect it.

The page itself is TypeScript in the top folder `page`; `make page` builds it into `static/`, which is not in git. It
uses only the REST API. `server` serves it.
"""
