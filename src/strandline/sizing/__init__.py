"""Sizing: how many machines, partitions and bytes of disk a load needs, from measured figures."""

from strandline.sizing.model import Figures, Line, Load, plan, published

__all__ = ["Figures", "Line", "Load", "plan", "published"]
