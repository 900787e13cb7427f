"""How far event time is complete: the Watermark Server and its client.

::

    members --progress--> tracker (one stage) --> server: each stage after its upstream --commit--> store --publish--> clients
    topology: what is registered    naming: who is expected    wire: reports as bytes    api: HTTP    client: what jobs use
"""
