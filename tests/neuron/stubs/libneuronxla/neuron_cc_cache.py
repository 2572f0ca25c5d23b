"""The caches that optimum-neuron builds on: only that in a directory does anything."""

import os
import shutil

COMPILER = "neuronxcc-2.21.33363.0+82129205"


class CacheUrl:
    def __init__(self, url, url_type="fs"):
        self.url = url

    @staticmethod
    def get_cache_url(cache_dir=None):
        return CacheUrl(cache_dir or os.environ["NEURON_COMPILE_CACHE_URL"])

    def is_s3(self):
        return False


class CompileCache:
    def __init__(self, cache_url):
        self.cache_url, self.cache_path = cache_url, cache_url.url

    def get_cache_dir_with_cache_key(self, key):
        return os.path.join(self.cache_path, COMPILER, key)

    def get_cache_dir(self, model_hash, compile_flags):
        return self.get_cache_dir_with_cache_key("MODULE_%s+%s" % (model_hash, compile_flags))


class CompileCacheS3(CompileCache):
    pass


class CompileCacheFs(CompileCache):
    def exists(self, path):
        return os.path.exists(path)

    def download_file(self, path, to):
        shutil.copy(path, to)

    def upload_file(self, path, source):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copy(source, path)

    def upload_string_to_file(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)


def create_compile_cache(cache_url):
    return CompileCacheFs(cache_url)
