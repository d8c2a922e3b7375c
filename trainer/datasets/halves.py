"""What lies in --data-dir or --data-url: both halves of a data set, as a folder of images or as shards."""

from trainer.datasets.base import Request
from trainer.datasets.index import indexed_files
from trainer.datasets.manifest import find_manifest
from trainer.datasets.remote import open_remote
from trainer.datasets.shards import open_folder
from trainer.datasets.source import FolderSource, Halves
from trainer.datasets.tree import find_tree


def find_halves(request: Request) -> Halves:
    """Both halves, whatever they are kept in.  Raises DataError when they are not as they should be."""
    if request.data_url is not None:
        return open_remote(request, request.data_url)
    manifest = find_manifest(request.data_dir)
    if manifest is not None:
        return open_folder(request, manifest)
    tree = find_tree(request.data_dir)
    train, evaluation = indexed_files(request.cache_dir, tree)
    return Halves(FolderSource(train), FolderSource(evaluation), tree.classes, request.data_dir, tree.evaluation.name)
