"""What of an environment, a command line and a configuration may be kept: names on a list, never a secret.

A variable is kept with its value when its name is on the list below; of any other only the name is kept. Passwords in
URLs and values of keys that are called like secrets are replaced by ***, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mlbench.secret_names import MASK as MASK
from mlbench.secret_names import is_secret_name, mask_override
from mlbench.secret_names import mask_url as mask_url

NOT_KEPT = "(not kept)"

_PREFIXES = (
    "NCCL_", "HOROVOD_", "MXNET_", "OMP_", "KMP_", "MKL_", "OPENBLAS_", "GOMP_", "OMPI_", "PMIX_", "PRTE_", "UCX_",
    "CUDA_", "CUDNN_", "NVIDIA_", "GLOO_", "DALI_", "DNNL_", "ONEDNN_", "SHARP_", "MELLANOX_", "SLURM_", "MLBENCH_",
)  # fmt: skip
_NAMES = {
    "PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "TZ", "MALLOC_ARENA_MAX", "S3_ENDPOINT",
    "S3_USE_HTTPS", "S3_VERIFY_SSL", "AWS_LOG_LEVEL", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_EC2_METADATA_DISABLED",
}  # fmt: skip


def storable_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with their values where the name is on the list, else with `(not kept)`."""
    return {name: mask_url(value) if _is_listed(name) else NOT_KEPT for name, value in sorted(environment.items())}


def storable_arguments(arguments: Iterable[str]) -> list[str]:
    """A command line without passwords: in URLs, and as the value of an override whose key is called like a secret."""
    return [mask_override(argument) for argument in arguments]


def without_secrets(value: Any) -> Any:
    """Plain JSON data with secrets masked; objects under a key `environment` are judged by the list of names."""
    if isinstance(value, Mapping):
        return {str(key): _of_key(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(item) for item in value]
    return mask_url(value) if isinstance(value, str) else value


def _of_key(key: str, value: Any) -> Any:
    if key == "environment" and isinstance(value, Mapping):
        return storable_environment({str(name): str(text) for name, text in value.items()})
    if is_secret_name(key) and value not in (None, "", [], {}):
        return MASK
    return without_secrets(value)


def _is_listed(name: str) -> bool:
    return (name in _NAMES or name.startswith(_PREFIXES)) and not is_secret_name(name)
