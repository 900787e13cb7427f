"""A real schema registry with Confluent's REST API: Hortonworks' (now Cloudera's) Schema Registry, whose jars are on Maven Central.

Its answers to what clients of Confluent's registry ask are its own code's; schemas are checked for backward compatibility, and kept in memory.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from tests.servers import jars
from tests.servers.kafka import QUICK_TO_START
from tests.servers.process import Server

_PACKAGE = "com.hortonworks.registries"
_CONFIG = """
modules:
  - name: schema-registry
    className: {package}.schemaregistry.webservice.SchemaRegistryModule
    config:
      schemaProviders:
        - providerClass: {package}.schemaregistry.avro.AvroSchemaProvider
          defaultSerializerClass: {package}.schemaregistry.serdes.avro.AvroSnapshotSerializer
          defaultDeserializerClass: {package}.schemaregistry.serdes.avro.AvroSnapshotDeserializer
fileStorageConfiguration:
  className: {package}.common.util.LocalFileSystemStorage
  properties: {{directory: "{folder}"}}
storageProviderConfiguration: {{providerClass: {package}.storage.impl.memory.InMemoryStorageManager}}
swagger: {{resourcePackage: {package}.schemaregistry.webservice}}
server:
  applicationConnectors: [{{type: http, port: {port}, bindHost: 127.0.0.1}}]
  adminConnectors: []
logging: {{level: WARN}}
"""


class Registry(Server):
    """``with Registry() as registry: registry.ask("/subjects")``."""

    def __init__(self) -> None:
        super().__init__("registry")

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}/api/v1/confluent"

    def ask(self, path: str) -> Any:
        """The answer to a GET."""
        with urlopen(self.url + path, timeout=20) as answer:
            return json.load(answer)

    def install(self) -> None:
        self.data_path.mkdir()
        settings = _CONFIG.format(package=_PACKAGE, folder=self.data_path, port=self.port)
        Path(self.directory, "registry.yaml").write_text(settings)

    def command(self) -> list[str]:
        java = shutil.which("java")
        assert java is not None, "Java 17 or newer must be on the PATH"
        main = [f"{_PACKAGE}.webservice.RegistryApplication", "server", "registry.yaml"]
        return [java, *QUICK_TO_START, "-cp", jars.class_path("registry"), *main]

    def answers(self) -> bool:
        try:
            return isinstance(self.ask("/subjects"), list)
        except (URLError, OSError):
            return False
