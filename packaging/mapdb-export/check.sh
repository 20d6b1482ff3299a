#!/bin/sh
# Has the real MapDB make databases of the fixtures, exports them, and compares that with what the tests of the import read.
# Needs Java 11 and Maven; everything that it makes is in a folder of its own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fixtures=$here/../../tests/fixtures/import
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mvn -q -B -f "$here/pom.xml" dependency:copy-dependencies -DoutputDirectory="$work/lib"
mkdir "$work/db"
java -cp "$work/lib/*" "$here/fixture/MakeFixture.java" "$fixtures/mapdb" "$work/db"
java -cp "$work/lib/*" "$here/MapDbExport.java" "$work/db" "$work/export"
diff -r "$fixtures/export" "$work/export"
echo "the export is as the tests have it"
