"""The public functions of `privaudit`, which use all its layers."""
