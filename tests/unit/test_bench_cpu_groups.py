"""Where the bench makes control groups that limit CPU time, on the two versions of control groups."""

from pathlib import Path

import pytest
from bench.cpu_groups import NoControlGroups, find_parent


def make_v2_group(folder: Path, controllers: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.subtree_control").write_text(controllers)


def test_with_version_1_groups_are_made_in_the_own_group_of_the_cpu_controller(
    tmp_path: Path,
) -> None:
    (tmp_path / "cpu" / "mine").mkdir(parents=True)
    mounts = (
        f"cgroup {tmp_path}/cpuset cgroup rw,relatime,cpuset 0 0\n"
        f"cgroup {tmp_path}/cpu cgroup rw,relatime,cpu,cpuacct 0 0\n"
    )

    assert find_parent("3:cpuset:/\n1:cpu,cpuacct:/mine\n", mounts) == tmp_path / "cpu" / "mine"


def test_in_a_container_that_shows_its_group_as_the_whole_they_are_made_there(
    tmp_path: Path,
) -> None:
    mounts = f"cgroup {tmp_path} cgroup rw,cpu 0 0\n"

    assert find_parent("1:cpu:/docker/0123\n", mounts) == tmp_path


def test_with_version_2_groups_are_made_in_the_nearest_one_that_passes_the_controller_on(
    tmp_path: Path,
) -> None:
    make_v2_group(tmp_path, "cpu memory\n")
    make_v2_group(tmp_path / "user", "memory cpu pids\n")
    make_v2_group(tmp_path / "user" / "mine", "")
    mounts = f"proc /proc proc rw 0 0\ncgroup2 {tmp_path} cgroup2 rw 0 0\n"

    assert find_parent("0::/user/mine\n", mounts) == tmp_path / "user"


def test_a_machine_without_the_controller_is_said_to_have_none(tmp_path: Path) -> None:
    make_v2_group(tmp_path, "memory\n")
    mounts = f"cgroup2 {tmp_path} cgroup2 rw 0 0\n"

    with pytest.raises(NoControlGroups, match="can limit CPU time"):
        find_parent("0::/\n", mounts)
