"""HTTP conventions of the API: routes, requests, refusals, limits, long polls, streams and the OpenAPI document."""
