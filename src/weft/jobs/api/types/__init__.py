"""Requests and answers of the service, as msgspec structs; they load neither the server nor the database."""
