"""Reports about runs on a TDMA channel whose strategy assigns the slots."""
