"""Reports about accuracy by label and by the runtime classes of the devices."""
