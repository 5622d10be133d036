"""Plans as pure data: placements, layouts, the schedule of one program, and what it will communicate."""
