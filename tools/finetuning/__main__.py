import sys

from finetuning.command import main

sys.exit(main())
