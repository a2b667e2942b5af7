"""The one record of what is planned, running and done. Prefect, MLflow and Optuna are mirrors of it."""
