def write(out, scale, study): pass
