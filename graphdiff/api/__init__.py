"""What users call that is more than one stage: functions, transforms, checks, NumPy's protocols."""
