"""An AWS inside this process: moto as a server, with what moto lacks or gets wrong mended."""
