"""Bodies of HTTP requests and answers: bytes to typed values and back.

Pure: no HTTP server, no clock, no ledger. What cannot be understood raises WireError, which names
the field in the protocol's own spelling; no other exception leaves a decoder, whatever the bytes.
May be imported by `api` and by the tools that speak to it; imports `objects`, `model`, `errors`.
"""
