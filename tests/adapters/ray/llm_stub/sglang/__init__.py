"""Protocol models alone, where neither vLLM nor SGLang can be installed; see `protocol.py`."""
