"""Pictures as the service has them: data sets for jobs, trainings, trained models, projects, automatic labels."""
