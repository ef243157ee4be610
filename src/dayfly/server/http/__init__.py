"""HTTP conventions: routes, requests, refusals, limits, long polls, streams, the OpenAPI document."""
