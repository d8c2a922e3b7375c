"""An AWS inside this process: moto as a server, patched where it lacks or gets wrong what the launchers use."""
