"""`privaudit.train` and `privaudit.tune`, with settings by name among the arguments."""

import dataclasses

import privaudit

_ARGUMENTS = ("epsilon", "rounds")
_SETTINGS = [
    field.name
    for field in dataclasses.fields(privaudit.TrainingSettings)
    if field.name not in _ARGUMENTS
]


def _settled(named):
    own = {name: named.pop(name) for name in _SETTINGS if name in named}
    return {**named, "settings": privaudit.TrainingSettings(**own)}


def pa_train(*given, **named):
    return privaudit.train(*given, **_settled(named))


def pa_tune(*given, **named):
    return privaudit.tune(*given, **_settled(named))
