"""The public functions of `privaudit`: what is done across its layers."""
