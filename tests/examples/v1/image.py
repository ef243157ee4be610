"""An image of the first framework: two static programs and nothing else, no shell among it."""

import shutil
import subprocess
from pathlib import Path

from testcluster import images

SOURCE = Path(__file__).with_name("plugin.c")
NAME = "v1.example/database:1"


def programs(folder: Path) -> Path:
    """Build the two programs of /signadot/plugin/bin."""
    folder.mkdir(parents=True)
    made = folder / "provision"
    subprocess.run(["cc", "-static", "-Os", "-s", "-o", made, SOURCE], check=True)
    shutil.copy2(made, folder / "deprovision")
    return folder


def archive() -> Path:
    """The image NAME."""

    def fill(root: Path) -> None:
        programs(root / "signadot" / "plugin" / "bin")

    return images.cached(NAME, SOURCE, fill, images.Settings())
