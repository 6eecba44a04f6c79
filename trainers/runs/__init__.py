"""Training runs: from settings to a folder.

training        the checked settings; ``material``: model, data and loss
problem         data, model and network of a training, and its blocks of runs
run             one training in a folder: `train` with a runner
over_ranks      the runner under torchrun; ``parties`` that where each has its own data,
                ``real_clock`` those of workers that wait for nobody
supervisor      starts worker processes, hears them and ends them
budget, search  the noise that meets a claim; settings on held-out data
measures        accuracy, loss and consensus; ``outcome`` keeps them
checkpoint      the state of a run as bytes; ``run_keys`` its secret key
final_models    the nodes' models as a file
consensus       private averaging of vectors, without training
"""
