"""The endpoint picker: Envoy asks it over external processing where each request should go.

A request's way: `server` carries the stream, `stream` reads it message by message (`headers`, `body`, `answer`), `pool`
asks the schedulers in `lanes` and holds a call back while that pays, `replies` is what goes back. `scrape` keeps the
picture of the endpoints, `picker` puts everything together from `settings`.
"""
