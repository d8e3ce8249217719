"""Puts scheduler, runner and text together and runs the step loop. Sees a Runner protocol, never a backend."""
