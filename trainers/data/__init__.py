"""Records, how they are shared among nodes, and data sets."""

from trainers.data.catalogue import DATASETS, check_dataset, load_dataset
from trainers.data.fetched import DataUnavailableError
from trainers.data.records import Dataset, PrivateData
from trainers.data.splits import Partition

__all__ = [
    "DATASETS",
    "DataUnavailableError",
    "Dataset",
    "Partition",
    "PrivateData",
    "check_dataset",
    "load_dataset",
]
