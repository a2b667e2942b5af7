"""One submission of a study: prepare, train, judge, report. The same road whether Prefect drives it or nobody does."""
