"""The asyncio shell: sockets, processes, files. Everything it decides, it asks of the pure packages."""
