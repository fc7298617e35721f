"""Oracles: finding, running and believing them.

`loading` finds an oracle by its spec, `runners` ask it in processes of their own, `judge` decides
what its answers mean for a candidate, `cache` remembers them, `executor` asks several at once.
`contract` is what the author of a Python oracle sees.
"""
