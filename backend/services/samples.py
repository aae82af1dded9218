"""The sample studies that come with Serpens, taken in like any upload."""

import hashlib
from collections.abc import Callable

import structlog

from backend.domain.access import Actor
from backend.domain.study import Upload, UploadState
from backend.samples import Sample, samples
from backend.services.accounts import SAMPLE_PEOPLE, actor_named
from backend.services.context import Clock
from backend.services.ingest import ingest_paths
from backend.settings import Settings
from backend.store.blobs import Blobs
from backend.store.repository import Store

log = structlog.get_logger(__name__)


def load_samples(
    project_id: str,
    *,
    store: Store,
    blobs: Blobs,
    settings: Settings,
    clock: Clock,
    actor: Actor | None = None,
    find: Callable[[], tuple[Sample, ...]] = samples,
) -> list[Upload]:
    """Bring the samples into a project; those that are there cost one query together.

    Args:
        actor: On whose behalf; the first of the sample people unless given.

    Returns:
        The uploads that this call made.

    Raises:
        NotFound: If the person is no member of the project.
    """
    sender = actor or actor_named(SAMPLE_PEOPLE[0].name, store=store)
    by_key = {_request_key(project_id, sample): sample for sample in find()}
    with store.transaction(read_only=True) as tx:
        there = tx.uploads.finished_keys(sender.user_id, list(by_key))
    made = [
        ingest_paths(
            sender,
            project_id,
            sample.paths,
            request_key=key,
            stated_modality=sample.stated_modality,
            stated_description=sample.title,
            store=store,
            blobs=blobs,
            settings=settings,
            clock=clock,
        )
        for key, sample in by_key.items()
        if key not in there
    ]
    for upload in made:
        if upload.state is not UploadState.DONE:
            log.warning("sample_not_loaded", upload_id=upload.id, state=upload.state.value)
    return made


def _request_key(project_id: str, sample: Sample) -> str:
    """Names a sample as it is now: another version of it, or another project, has another key."""
    told = [project_id, sample.title, sample.stated_modality]
    told += [f"{file.name} {file.stat().st_size}" for file in sample.paths]
    return f"sample-{hashlib.sha256(chr(0).join(told).encode()).hexdigest()[:40]}"
