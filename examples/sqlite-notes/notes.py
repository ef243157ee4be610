"""The notes application: GET /notes returns the notes in the database NOTES_DB as JSON, on 127.0.0.1:$PORT."""

import json
import os
import sqlite3
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Notes(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/notes":
            self.send_error(404, "try /notes")
            return
        with sqlite3.connect(f"file:{os.environ['NOTES_DB']}?mode=ro", uri=True) as connection:
            rows = [text for (text,) in connection.execute("SELECT text FROM notes ORDER BY id")]
        body = json.dumps(rows, indent=2).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Notes).serve_forever()
