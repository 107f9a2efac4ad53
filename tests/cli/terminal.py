"""Runs a command on a pseudo-terminal, types Ctrl-C once the command has printed a text, and prints its output.

python3 terminal.py TEXT COMMAND...      an empty TEXT types nothing; exits with the code of the command
"""

import os, pty, sys

text, command = sys.argv[1].encode(), sys.argv[2:]
child, terminal = pty.fork()
if child == 0:
    os.execvp(command[0], command)
shown, typed = b"", False
while True:
    try:
        part = os.read(terminal, 4096)
    except OSError:  # the command has ended
        break
    if not part:
        break
    shown += part
    if text and not typed and text in shown:
        os.write(terminal, b"\x03")
        typed = True
_, status = os.waitpid(child, 0)
sys.stdout.buffer.write(shown)
sys.exit(os.waitstatus_to_exitcode(status))
