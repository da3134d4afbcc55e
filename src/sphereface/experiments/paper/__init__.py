"""Every table and figure of the paper, one file each; `catalogue` lists them, `runs` trains what they share."""
