"""Process 2: holds versions of models' files and serves their bytes."""
