"""HTTP conventions: routes, authentication, requests, errors, limits, long polls, streams, the OpenAPI document."""
