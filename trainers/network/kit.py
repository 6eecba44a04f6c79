"""A site's kit of NVIDIA FLARE: who it is, where its server is, which sites train."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any, Self

import msgspec

from privaudit.files import toml


class Kit(msgspec.Struct, frozen=True, kw_only=True):
    """Identity and addresses of a site that takes part without a job; see `read`."""

    # name, sites: this site's, and all sites' in the order of the parties' numbers
    name: str
    sites: tuple[str, ...]
    # project, server: of FLARE's server: its project, and who its certificate is of
    project: str
    server: str
    # scheme, target, relay: where messages go, and how: to the server, or to a relay of
    # that name
    scheme: str
    target: str
    relay: str | None
    # authority, certificate, key: files of the federation's root certificate, and of
    # this site's own
    authority: str
    certificate: str
    key: str

    @property
    def rank(self) -> int:
        return self.sites.index(self.name)

    @property
    def places(self) -> dict[str, str]:
        """Sites by the places at which FLARE reaches them, in order."""
        before = "" if self.relay is None else f"{self.relay}."
        return {f"{before}{site}": site for site in self.sites}

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> Self:
        """The kit in ``folder``; ``ValueError`` if it is none, or names no sites."""
        there = pathlib.Path(folder)
        startup, local = there / "startup", there / "local"
        ours, by = local / "privaudit.toml", local / "relay__resources.json"
        try:
            text = (startup / "fed_client.json").read_text()
            given: dict[str, Any] = json.loads(text)
            client, server = given["client"], given["servers"][0]
            service, name = server["service"], client["fqsn"]
            target, relay = service["target"], None
            if by.exists():
                service = json.loads(by.read_text())["relay_config"]
                target, relay = service["address"], service["fqcn"]
            found = cls(
                name=name,
                sites=tuple(toml.read(ours).get("sites", ())),
                project=server["name"],
                server=server["identity"],
                scheme=service["scheme"],
                target=target,
                relay=relay,
                authority=str(startup / client["ssl_root_cert"]),
                certificate=str(startup / client["ssl_cert"]),
                key=str(startup / client["ssl_private_key"]),
            )
        except (OSError, ValueError, LookupError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"
            if isinstance(error, FileNotFoundError):
                why = f"it has no {error.filename}"
            raise ValueError(
                f"{there} is no kit of a FLARE site as `privaudit federation init` and "
                f"`nvflare provision` make them ({why})"
            ) from None
        if name not in found.sites or len(set(found.sites)) < max(2, len(found.sites)):
            raise ValueError(
                f"{ours} must name the sites that train, each once, in the same order "
                f'at all, as in sites = ["{name}", "other"]'
            )
        return found
