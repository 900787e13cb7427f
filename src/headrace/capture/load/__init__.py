"""Full load: the tables of a source as they are, read in parallel into topics of their own while capture goes on.

`plan` is what stands on the log, `planner` divides tables into shards, `worker` reads them; `base` is what a source gives for it.
"""
