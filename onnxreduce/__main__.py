"""``python -m onnxreduce``."""

import sys

from onnxreduce.cli import main

sys.exit(main())
