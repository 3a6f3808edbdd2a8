"""Reports about runs whose server steps use K gradients."""
