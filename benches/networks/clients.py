"""The viewers behind the network. Each has this interface:

    NAME, FILM          its name, and the codec of the film that it is shown
    HOST                the address of this machine at which it reaches the relay, where that is not loopback
    SERVERS             the kinds of signalling that it speaks
    missing()           why it cannot be run, or None
    version()
    watch(kind, options)    asks a server for its stream, by the server's own signalling
    wants()             the address that the server has named
    relay_at(port)      makes the relay the server's only candidate; the time of the run begins
    finish()            the observations: `began`, `pictures` (the times of all decoded pictures, in ms), and `looks`, statistics from time to
                        time in the names of browsers (`video`, `audio`); a figure that a client does not have is missing or null
    close()
"""

import in_browsers
import stacks

ALL = (in_browsers.Chromium, in_browsers.Firefox, stacks.Pion, stacks.Str0m)
NAMES = tuple(client.NAME for client in ALL)
