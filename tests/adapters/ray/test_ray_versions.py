import pytest

from swarmx.adapters.ray_serve.versions import check_ray, supported
from swarmx.errors import BadInput


def test_the_installed_ray_is_supported() -> None:
    assert check_ray().startswith("2.60")


@pytest.mark.parametrize("found", ["2.59.0", "2.61.0rc1", "3.0.0", "nightly"])
def test_another_ray_is_refused_with_a_sentence(found: str) -> None:
    with pytest.raises(BadInput, match=rf"Ray {found} is not supported; swarmx works with {supported()}"):
        check_ray(found)
