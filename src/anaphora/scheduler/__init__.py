"""Who runs in the next step, and with which pages. Pure: standard library only, told the time."""
