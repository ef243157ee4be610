"""A stand-in for a service that reads its catalogue from S3: it returns the configured location as JSON."""

import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Checkout(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"bucket": os.environ["BUCKET"], "prefix": os.environ["PREFIX"]}).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Checkout).serve_forever()
