"""`python -m llmgw_agent`."""

from __future__ import annotations

import sys

from llmgw_agent.main import main

sys.exit(main())
