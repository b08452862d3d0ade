"""What people decide: the live config (a ConfigMap or a file) and the settings of a process.

Reads text and checks it; opens no file, connection or environment variable. Imports `objects`,
`model` and `errors` only.
"""
